{{- define "caddy-fhir.name" -}}
{{- contains .Chart.Name .Release.Name | ternary .Release.Name (printf "%s-%s" .Release.Name .Chart.Name) | trunc 50 | trimSuffix "-" }}
{{- end }}

{{- define "caddy-fhir.selector" -}}
app.kubernetes.io/name: {{ .Chart.Name }}
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end }}

{{- define "caddy-fhir.labels" -}}
{{ include "caddy-fhir.selector" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ .Chart.Name }}-{{ .Chart.Version | replace "+" "_" }}
{{- end }}

{{- define "caddy-fhir.image" -}}
{{- with .Values.image -}}
{{- if .digest }}{{ .repository }}@{{ .digest }}{{ else }}{{ .repository }}:{{ .tag | default (printf "v%s" $.Chart.AppVersion) }}{{ end }}
{{- end }}
{{- end }}

{{- define "caddy-fhir.host" -}}
{{ (urlParse .Values.issuer).hostname }}
{{- end }}

{{- define "caddy-fhir.several" -}}
{{- if or .Values.autoscaling.enabled (gt (int .Values.replicas) 1) }}yes{{ end }}
{{- end }}

{{/* Lines of the values below so many tabs, with a tab for each two spaces that they begin with. */}}
{{- define "caddy-fhir.lines" -}}
{{- $tabs := repeat (int .tabs) "\t" }}
{{- range splitList "\n" (.text | trim) }}
{{ $tabs }}{{ regexFind "^ *" . | replace "  " "\t" }}{{ regexReplaceAll "^ *" . "" }}
{{- end }}
{{- end }}

{{/* How a store is asked by TLS. */}}
{{- define "caddy-fhir.storeTLS" -}}
{{- if and .tls .ca }}
			tls_ca /run/secrets/caddy-fhir/{{ .ca }}
{{- end }}
{{- end }}

{{- define "caddy-fhir.backend" -}}
{{- if eq .Values.mode "sidecar" }}localhost:{{ .Values.fhirServer.port }}{{ else }}{{ .Values.backend.host }}:{{ .Values.backend.port }}{{ end }}
{{- end }}

{{- define "caddy-fhir.caddyfile" -}}
{
	admin {$CADDY_ADMIN}
	shutdown_delay {{ .Values.shutdownDelay }}s
	grace_period {{ .Values.gracePeriod }}s

	log {
		format fhir
	}

	servers {
		protocols h1
		# disconnect clients that stop sending or reading for 30 s
		timeouts {
			read_body_idle 30s
			write_idle 30s
		}
{{- with .Values.trustedProxies }}
		trusted_proxies static {{ join " " . }}
		trusted_proxies_strict
{{- end }}
	}

	fhir {
		issuer {{ .Values.issuer }}
		fhir_base {{ .Values.fhirBase }}
		health :8081
{{- with .Values.store }}
{{- if eq .type "redis" }}
		store redis {
			url {{ ternary "rediss" "redis" .tls }}://:{file./run/secrets/caddy-fhir/store-password}@{{ .address }}
{{- include "caddy-fhir.storeTLS" . }}
		}
{{- else if eq .type "postgres" }}
		store postgres {
			dsn postgres://{{ .user }}:{file./run/secrets/caddy-fhir/store-password}@{{ .address }}/{{ .database }}{{ if .tls }}?sslmode=verify-full{{ end }}
{{- include "caddy-fhir.storeTLS" . }}
		}
{{- end }}
{{- if ne .type "file" }}
		store_key {file./run/secrets/caddy-fhir/store-key}
{{- end }}
{{- end }}
{{- with .Values.fhir }}
{{- include "caddy-fhir.lines" (dict "tabs" 2 "text" .) }}
{{- end }}
	}
}

http://:8000 {
	fhir_gateway {{ include "caddy-fhir.backend" . }} {
{{- with .Values.bearer }}
		fhir_bearer {
{{- include "caddy-fhir.lines" (dict "tabs" 3 "text" .) }}
		}
{{- end }}
{{- with .Values.expand }}
		fhir_expand {
{{- include "caddy-fhir.lines" (dict "tabs" 3 "text" .) }}
		}
{{- end }}
	}
}

http://:8082 {
	metrics
}
{{- end }}
