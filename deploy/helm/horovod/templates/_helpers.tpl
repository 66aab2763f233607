{{- define "horovod.name" -}}
{{- if contains .Chart.Name .Release.Name }}{{ .Release.Name | trunc 40 | trimSuffix "-" }}{{ else }}{{ printf "%s-%s" .Release.Name .Chart.Name | trunc 40 | trimSuffix "-" }}{{ end }}
{{- end }}

{{- define "horovod.labels" -}}
app.kubernetes.io/name: {{ .Chart.Name }}
app.kubernetes.io/instance: {{ .Release.Name }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version }}
{{- end }}

{{- define "horovod.selector" -}}
app.kubernetes.io/name: {{ .Chart.Name }}
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end }}

{{- define "horovod.queue" -}}
{{- with .Values.queue }}
kueue.x-k8s.io/queue-name: {{ . | quote }}
{{- end }}
{{- end }}

{{/* Ranks in a pod: those of the values, otherwise the GPUs of its limits, otherwise 1. */}}
{{- define "horovod.ranks" -}}
{{- $limits := (.Values.worker.resources).limits | default dict }}
{{- $gpus := 0 }}
{{- range $name, $count := $limits }}
{{- if hasSuffix ".com/gpu" $name }}{{ $gpus = add $gpus (int $count) }}{{ end }}
{{- end }}
{{- if .Values.worker.ranks }}{{ .Values.worker.ranks }}{{ else }}{{ max 1 $gpus }}{{ end }}
{{- end }}

{{/* What all pods have in common; `containers` follows. */}}
{{- define "horovod.pod" -}}
subdomain: {{ include "horovod.name" . }}
{{- with .Values.worker.imagePullSecrets }}
imagePullSecrets: {{- toYaml . | nindent 2 }}
{{- end }}
automountServiceAccountToken: false
enableServiceLinks: false
{{- if .Values.useHostNetwork }}
hostNetwork: true
dnsPolicy: ClusterFirstWithHostNet
{{- end }}
securityContext: {{- toYaml .Values.podSecurityContext | nindent 2 }}
{{- with .Values.worker.nodeSelector }}
nodeSelector: {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .Values.worker.tolerations }}
tolerations: {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .Values.worker.affinity }}
affinity: {{- toYaml . | nindent 2 }}
{{- end }}
volumes:
- name: shared-memory
  emptyDir:
    medium: Memory
    sizeLimit: {{ .Values.sharedMemory }}
{{- if eq .Values.mode "launcher" }}
- name: keys
  secret:
    secretName: {{ include "horovod.name" . }}
    defaultMode: 0440
{{- end }}
{{- with .Values.volumes }}
{{ toYaml . }}
{{- end }}
{{- end }}

{{- define "horovod.container" -}}
image: {{ printf "%s:%v" .Values.worker.image.repository .Values.worker.image.tag }}
imagePullPolicy: {{ .Values.worker.image.pullPolicy }}
securityContext: {{- toYaml .Values.securityContext | nindent 2 }}
volumeMounts:
- name: shared-memory
  mountPath: /dev/shm
{{- if eq .Values.mode "launcher" }}
- name: keys
  mountPath: /keys
  readOnly: true
{{- end }}
{{- with .Values.volumeMounts }}
{{ toYaml . }}
{{- end }}
{{- end }}

{{- define "horovod.env" -}}
- name: HOROVOD_START_TIMEOUT
  value: {{ .Values.startTimeout | quote }}
{{- range $name, $value := .Values.worker.env }}
- name: {{ $name }}
  value: {{ $value | quote }}
{{- end }}
{{- end }}
