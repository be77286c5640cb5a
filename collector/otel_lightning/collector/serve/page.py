"""Create the page of a served store."""

from otel_lightning.collector.page.answer import Access, Page
from otel_lightning.collector.page.process import Pages
from otel_lightning.collector.page.sessions import Sessions
from otel_lightning.collector.receive.accept import Receiver
from otel_lightning.collector.serve.settings import Settings
from otel_lightning.collector.store import Server, Store


def open_page(receiver: Receiver, settings: Settings, store: Store, server: Server) -> Page:
    """Create the page; its processes start with the first request.

    Args:
        receiver: The spool for judgements, the access check and the counters.
        settings: Addresses, tokens and certificates.
        store: The store, served already.
        server: The server file's content: its writer token lets a browser in.
    """
    tokens = (server.token, *([settings.token] if settings.token else []))
    needs_client = settings.tls is not None and settings.tls.client_ca is not None
    # Cookies do not know ports: two ingesters on one host need two names.
    sessions = Sessions(tokens, f"lightning_page_{settings.http.port}")
    access = Access(sessions, settings.tls is not None, needs_client)
    scheme = "https" if settings.tls else "http"
    facts = {"url": f"{scheme}://{settings.http}", "console": settings.has_console}
    return Page(receiver, access, Pages(store.sql_server.page_reads()), facts)
