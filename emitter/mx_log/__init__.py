"""The contract of the log, which those who write it and those who read it share.

``schema`` says what a line holds, ``files`` how files are named, ``locks`` how a living writer is
told from one that is gone, ``values`` how a setting's text is read. Standard library only.
"""
