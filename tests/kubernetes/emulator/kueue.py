"""stub"""


class Kueue:
    def __init__(self, registry, soon): ...
