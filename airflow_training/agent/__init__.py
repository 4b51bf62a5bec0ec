"""The program around every local training process, and helpers a training script may import.

Standard library only: all modules but `package` travel inside one `.pyz`.
"""
