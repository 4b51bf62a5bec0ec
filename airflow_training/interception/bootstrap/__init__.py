"""What stands on PYTHONPATH of a training, see `interception.protocol.hook_environment`."""
