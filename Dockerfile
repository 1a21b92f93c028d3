# The README's command in a container, on a CPU by default:
#
#   docker build -t jaxcnn .
#   docker run --rm -v jaxcnn-results:/home/jaxcnn/results jaxcnn
#
# EXTRAS are extras of pyproject.toml, such as cuda13. The compiler of the kernels stays in the
# build stage.
FROM python:3.11-slim AS build
ARG EXTRAS=""
RUN apt-get update && apt-get install -y --no-install-recommends g++ \
    && rm -rf /var/lib/apt/lists/*
WORKDIR /source
COPY pyproject.toml setup.py README.md LICENSE ./
COPY jaxcnn jaxcnn
COPY experiments experiments
RUN python -m venv /opt/jaxcnn \
    && /opt/jaxcnn/bin/pip install --no-cache-dir ".${EXTRAS:+[$EXTRAS]}"

FROM python:3.11-slim
COPY --from=build /opt/jaxcnn /opt/jaxcnn
RUN useradd --create-home jaxcnn && install -d -o jaxcnn -g jaxcnn /home/jaxcnn/results
USER jaxcnn
WORKDIR /home/jaxcnn
ENV PATH=/opt/jaxcnn/bin:$PATH
VOLUME /home/jaxcnn/results
ENTRYPOINT ["python", "-m"]
CMD ["experiments.run"]
