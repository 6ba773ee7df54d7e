"""Work on a GPU: choosing among many actions, posteriors and clicks, with results in double precision.

Nothing here knows about bandits. PyTorch is imported when a device is first used, kernels are compiled then.
"""
