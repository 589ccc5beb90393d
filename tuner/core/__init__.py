"""The pure state machine: events in, commands out; no I/O, no clock, no thread, no global chance."""
