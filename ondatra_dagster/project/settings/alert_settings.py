"""The settings in [tool.ondatra.alerts]: where alerts go, and when they fire."""

import dataclasses
import re
from collections.abc import Mapping

VARIABLE = re.compile(r"\$\{([A-Za-z_][A-Za-z0-9_]*)\}")
DEFAULTS = {"alerts.rejects": "10%", "alerts.deviation": "off", "alerts.no_success_hours": "24"}
OFF = "off"


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class AlertSettings:
    """The webhook may hold a token, so it doesn't show."""

    webhook: str | None = dataclasses.field(default=None, repr=False)  # None: nothing is looked at or sent
    token_env: str | None = None  # the variable that holds a Bearer token
    rejects: float | None = 0.1  # a share of the rows attempted; None: they are no reason
    deviation: float | None = None  # a share of the mean
    no_success_hours: float | None = 24

    @property
    def variables(self) -> tuple[str, ...]:
        """Those that have to be set."""
        named = VARIABLE.findall(self.webhook or "")
        return tuple(dict.fromkeys([*named, *([self.token_env] if self.token_env and self.webhook else [])]))


def alert_settings(texts: Mapping[str, str]) -> AlertSettings:
    """The settings, of values that were read one by one."""
    said = {**DEFAULTS, **texts}
    return AlertSettings(
        webhook=texts.get("alerts.webhook"),
        token_env=texts.get("alerts.token_env"),
        rejects=_share(said["alerts.rejects"]),
        deviation=_share(said["alerts.deviation"]),
        no_success_hours=None
        if said["alerts.no_success_hours"] == OFF
        else float(said["alerts.no_success_hours"]),
    )


def _share(text: str) -> float | None:
    return None if text == OFF else float(text.removesuffix("%")) / 100
