"""Where trials run: the executor's interface, trainables, the session that training code talks to, and executors.

Here are the executors that run trials in the same process and in virtual time; `tuner.execution.local` runs each attempt in a process of
its own. An executor decides nothing: it carries out commands of `tuner.core` and returns events.
"""
