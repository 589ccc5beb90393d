"""What a Python script tells of itself: its options and how it reports, read without running it."""
