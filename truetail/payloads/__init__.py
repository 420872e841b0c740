"""What requests carry: pools, texts, tensors and sizes, each a function of the arrival's number and the payload seed alone."""
