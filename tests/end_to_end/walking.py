"""A trainable that steps on until it is stopped."""

import tuner as tune


class Walker(tune.Trainable):
    """Takes a step each time, and saves when it is asked to."""

    def setup(self, config):
        self.at = 0

    def step(self):
        self.at += self.config["by"]
        return {"at": self.at}

    def save_checkpoint(self, checkpoint_dir):
        return {"at": self.at}

    def load_checkpoint(self, checkpoint):
        self.at = checkpoint["at"]
