"""The address that alerts are sent to, through the same door as everything else that goes out."""

from collections.abc import Callable

import httpx

from ondatra_dagster.delivery.http.http_api import HttpApi
from ondatra_dagster.delivery.http.http_request import Call
from ondatra_dagster.delivery.journal import Journal
from ondatra_dagster.delivery.push.push_config import BearerAuth, PushConfig, Variable
from ondatra_dagster.errors import SettingsError
from ondatra_dagster.project.settings.alert_settings import VARIABLE, AlertSettings

TIMEOUT_SECONDS = 10.0
SHOWN = 200  # letters of what the receiver says


class Webhook:
    """One try an alert: who sends comes back at the next look."""

    def __init__(
        self,
        settings: AlertSettings,
        *,
        secrets: Callable[[str], str | None],
        transport: httpx.BaseTransport | None = None,
    ) -> None:
        self._address = VARIABLE.sub(lambda found: secrets(found[1]) or "", settings.webhook or "")
        auth = BearerAuth(Variable(settings.token_env)) if settings.token_env else None
        config = PushConfig(
            name="alerts",
            file="alerts.webhook",
            destination="",
            object="",
            base_url=_origin(self._address),
            auth=auth,
            timeout_seconds=TIMEOUT_SECONDS,
            retry=0,
            env=settings.variables,
        )
        self._api = HttpApi(config, secrets=secrets, transport=transport)

    def send(self, alert_id: str, body: str) -> str | None:
        """None when the receiver has taken it, else why not; the id is its Idempotency-Key."""
        call = Call(method="POST", url=self._address, json=body, headers={"idempotency-key": alert_id})
        answer = self._api.begin(Journal.in_memory(alert_id)).call(call)
        if answer.ok:
            return None
        said = self._api.redactor.redact(answer.text)[:SHOWN]
        return f"it answered {answer.status_code}: {said}" if answer.shown_status else said

    def close(self) -> None:
        self._api.close()

    def __enter__(self) -> "Webhook":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def _origin(address: str) -> str:
    try:
        url = httpx.URL(address)
    except httpx.InvalidURL:
        url = httpx.URL("")
    if url.scheme not in ("http", "https") or not url.host:
        raise SettingsError("alerts.webhook is no address; write https://… and look at its variables")
    return f"{url.scheme}://{url.netloc.decode()}"
