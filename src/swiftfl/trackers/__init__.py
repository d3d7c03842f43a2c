"""Where the rows of a run go beside its folder: TensorBoard, MLflow, Weights & Biases, or own callbacks.

Each library is an extra (`pip install 'swiftfl[tensorboard]'`) and is imported by the one file of its name.
"""
