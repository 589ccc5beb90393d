"""A trainable that steps on until it is stopped, and a function that waits for a condition."""

import time

import tuner as tune


class Walker(tune.Trainable):
    """Takes a step each time, and saves when it is asked to."""

    def setup(self, config):
        self.at = 0

    def step(self):
        self.at += self.config["by"]
        time.sleep(0.002)
        return {"at": self.at}

    def save_checkpoint(self, checkpoint_dir):
        return {"at": self.at}

    def load_checkpoint(self, checkpoint):
        self.at = checkpoint["at"]


def wait_until(is_so):
    """Wait for something that another process or thread brings about."""
    until_s = time.monotonic() + 60.0
    while not is_so():
        assert time.monotonic() < until_s, "it never came about"
        time.sleep(0.01)
