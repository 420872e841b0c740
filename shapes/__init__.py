"""When: rates, spacings, traces, the schedule, and the LoadTestShapes built on them."""
