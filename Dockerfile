# The two commands for a newcomer, in a container:
#   docker build -t remuda . && docker run --rm --shm-size 1g remuda        (make train)
#   docker run --rm --shm-size 1g remuda test                               (make test)
FROM python:3.12-slim
RUN apt-get update && apt-get install -y --no-install-recommends git make && rm -rf /var/lib/apt/lists/*
WORKDIR /remuda
COPY . .
RUN make .venv/.installed
ENTRYPOINT ["make"]
CMD ["train"]
