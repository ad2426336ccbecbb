{{- define "tessera.name" -}}
{{- default .Chart.Name .Values.nameOverride | trunc 63 | trimSuffix "-" -}}
{{- end -}}

{{- define "tessera.fullname" -}}
{{- if .Values.fullnameOverride -}}
{{- .Values.fullnameOverride | trunc 52 | trimSuffix "-" -}}
{{- else if contains (include "tessera.name" .) .Release.Name -}}
{{- .Release.Name | trunc 52 | trimSuffix "-" -}}
{{- else -}}
{{- printf "%s-%s" .Release.Name (include "tessera.name" .) | trunc 52 | trimSuffix "-" -}}
{{- end -}}
{{- end -}}

{{- define "tessera.selector" -}}
app.kubernetes.io/name: {{ include "tessera.name" . }}
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end -}}

{{- define "tessera.labels" -}}
{{ include "tessera.selector" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version }}
{{- end -}}

{{- define "tessera.image" -}}
{{- if .Values.image.digest -}}
{{ .Values.image.repository }}@{{ .Values.image.digest }}
{{- else -}}
{{ .Values.image.repository }}:{{ .Values.image.tag | default .Chart.AppVersion }}
{{- end -}}
{{- end -}}

{{- define "tessera.workerImage" -}}
{{- with .Values.workers.image -}}
{{- if .digest -}}
{{ .repository }}@{{ .digest }}
{{- else -}}
{{ .repository }}:{{ .tag | default $.Values.image.tag | default $.Chart.AppVersion }}
{{- end -}}
{{- end -}}
{{- end -}}

{{- define "tessera.agentImage" -}}
{{- with .Values.agent.image -}}
{{- if .digest -}}
{{ .repository }}@{{ .digest }}
{{- else -}}
{{ .repository }}:{{ .tag | default $.Values.image.tag | default $.Chart.AppVersion }}
{{- end -}}
{{- end -}}
{{- end -}}

{{- define "tessera.agentSelector" -}}
app.kubernetes.io/name: {{ include "tessera.name" . }}-agent
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end -}}

{{- define "tessera.example" -}}
{{ if eq .Values.workers.mode "pods" }}/var/lib/tessera/example{{ else }}/example/data{{ end }}
{{- end -}}

{{- define "tessera.tokenSecret" -}}
{{- .Values.auth.existingSecret | default (printf "%s-token" (include "tessera.fullname" .)) -}}
{{- end -}}

{{- define "tessera.tlsSecret" -}}
{{- if eq .Values.tls.source "secret" -}}
{{- required "tls.secretName is needed with tls.source=secret: name a Secret of type kubernetes.io/tls that has ca.crt too" .Values.tls.secretName -}}
{{- else -}}
{{- printf "%s-tls" (include "tessera.fullname" .) -}}
{{- end -}}
{{- end -}}

{{- define "tessera.names" -}}
{{- $name := include "tessera.fullname" . -}}
{{- concat (list $name (printf "%s.%s" $name .Release.Namespace) (printf "%s.%s.svc" $name .Release.Namespace) (printf "%s.%s.svc.cluster.local" $name .Release.Namespace) "localhost") .Values.tls.extraNames | toJson -}}
{{- end -}}

{{- define "tessera.containerSecurity" -}}
allowPrivilegeEscalation: false
readOnlyRootFilesystem: true
capabilities: {drop: [ALL]}
{{- end -}}

{{- define "tessera.podSecurity" -}}
runAsNonRoot: true
runAsUser: 65532
runAsGroup: 65532
fsGroup: 65532
fsGroupChangePolicy: OnRootMismatch
seccompProfile: {type: RuntimeDefault}
{{- end -}}

{{/* "yes" where tesserad works only while it holds a Lease. */}}
{{- define "tessera.elects" -}}
{{- if or (gt (int .Values.replicas) 1) (eq .Values.storage.records "kubernetes") -}}yes{{- end -}}
{{- end -}}
