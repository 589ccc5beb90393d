"""Looking after experiments that lie on a disk: how they stand, what they take, whether they are whole, how they go on."""
