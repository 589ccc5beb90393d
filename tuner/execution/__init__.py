"""Where trials run: trainables, the session inside a worker, and the executors."""
