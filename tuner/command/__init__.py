"""Any program as a trainable: command lines, sweep files, and how a program reports."""
