# One image for every role: target, master, worker, collector. Built from the lock file; runs as an ordinary user.
FROM python:3.11-slim-bookworm AS build
WORKDIR /opt/truetail
COPY requirements.lock pyproject.toml README.md ./
RUN python -m venv /opt/venv && /opt/venv/bin/pip install --no-cache-dir -r requirements.lock
COPY shapes shapes
COPY truetail truetail
COPY locustfiles locustfiles
COPY collector collector
COPY target target
COPY analysis analysis
COPY scenarios scenarios
RUN /opt/venv/bin/pip install --no-cache-dir --no-deps -e .

FROM python:3.11-slim-bookworm
RUN useradd --uid 10001 --create-home truetail
COPY --from=build /opt/venv /opt/venv
COPY --from=build /opt/truetail /opt/truetail
ENV PATH=/opt/venv/bin:$PATH PYTHONDONTWRITEBYTECODE=1 PYTHONUNBUFFERED=1 MPLCONFIGDIR=/tmp/mpl
# As truetail.children sets them for processes that it starts: what is freed goes back to the kernel.
ENV MALLOC_MMAP_THRESHOLD_=131072 MALLOC_TRIM_THRESHOLD_=131072
WORKDIR /opt/truetail
USER 10001
ENTRYPOINT ["truetail"]
CMD ["--help"]
