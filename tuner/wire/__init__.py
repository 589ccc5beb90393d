"""What crosses a boundary: records that are declared once, and written as JSON values and read.

A boundary is a file, a pipe or a connection. What a record means, and what follows from it, is not
known here.
"""
