"""Random augmentation: policies over operations, and random framing."""
