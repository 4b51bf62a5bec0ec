"""stub"""


class JobController:
    def __init__(self, registry, soon): ...
