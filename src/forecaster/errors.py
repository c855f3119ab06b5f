"""What can go wrong for a user, and the exit code each kind ends with."""


class ForecasterError(Exception):
    """A fault told in one line: what, where, what to do."""

    exit_code = 1


class ConfigError(ForecasterError):
    """Configuration or usage."""

    exit_code = 2


class DataError(ForecasterError):
    """Bars."""

    exit_code = 3


class DivergedError(ForecasterError):
    """Training left the finite numbers."""

    exit_code = 4
