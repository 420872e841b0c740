"""The live view: a page of our own inside Locust's web UI, its data, its metrics, and the desk between two runs. See docs/live.md."""
