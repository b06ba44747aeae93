"""The webhook that alerts are sent to. It uses the same API client as the sinks."""

import contextlib
from collections.abc import Callable

import httpx

from ondatra_dagster.delivery.http.api_client import ApiClient
from ondatra_dagster.delivery.http.request_builder import HttpCall
from ondatra_dagster.delivery.push.push_config import BearerAuth, PushConfig, Variable
from ondatra_dagster.delivery.response_journal import ResponseJournal
from ondatra_dagster.errors import SettingsError
from ondatra_dagster.project.settings.read_settings_and_defaults import VARIABLE_REFERENCE, AlertSettings

TIMEOUT_SECONDS = 10.0
MAX_ANSWER_LENGTH = 200  # characters of the receiver's answer


class AlertWebhook(contextlib.AbstractContextManager["AlertWebhook"]):
    """A client of the alert webhook.

    It sends an alert once; if that fails, the caller sends it again at its next check.
    """

    def __init__(self, settings: AlertSettings, *, secrets: Callable[[str], str | None]) -> None:
        self._address = VARIABLE_REFERENCE.sub(lambda match: secrets(match[1]) or "", settings.webhook or "")
        auth = BearerAuth(Variable(settings.token_env)) if settings.token_env else None
        config = PushConfig(
            name="alerts",
            file="alerts.webhook",
            destination="",
            object="",
            base_url=_origin_of(self._address),
            auth=auth,
            timeout_seconds=TIMEOUT_SECONDS,
            retry=0,
            env=settings.required_variables,
        )
        self._api = ApiClient(config, secrets=secrets)

    def send_alert(self, alert_id: str, body: str) -> str | None:
        """Send an alert with its id as Idempotency-Key.

        Return None if it arrived, otherwise the reason for the failure.
        """
        call = HttpCall(method="POST", url=self._address, json=body, headers={"idempotency-key": alert_id})
        answer = self._api.begin_calls(ResponseJournal.in_memory(alert_id)).send_call(call)
        if answer.is_success:
            return None
        answer_text = self._api.redactor.redact(answer.text)[:MAX_ANSWER_LENGTH]
        return f"it answered {answer.status_code}: {answer_text}" if answer.status_for_push else answer_text

    def __exit__(self, *_: object) -> None:
        self._api.close()


def _origin_of(address: str) -> str:
    try:
        url = httpx.URL(address)
    except httpx.InvalidURL:
        url = httpx.URL("")
    if url.scheme not in ("http", "https") or not url.host:
        raise SettingsError("alerts.webhook isn't an address; write https://… and check its variables")
    return f"{url.scheme}://{url.netloc.decode()}"
