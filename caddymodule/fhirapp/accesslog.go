package fhirapp

import (
	"encoding/json"
	"net/url"
	"slices"
	"strings"

	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/caddyconfig/caddyfile"
	"github.com/caddyserver/caddy/v2/modules/caddyhttp"
	"github.com/caddyserver/caddy/v2/modules/logging"
	"go.uber.org/zap/zapcore"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/internal/option"
)

func init() { caddy.RegisterModule(new(LogEncoder)) }

// LogEncoder is a log format that redacts authorization codes, tokens, `state` and sign-in data in access logs. It replaces the
// values of such parameters with `REDACTED` in the request URI, in `Referer`, in headers in which proxies repeat the URI, and
// in the response header `Location`. Caddy itself redacts `Authorization`, `Cookie` and `Set-Cookie`. FHIR searches by `code`
// are redacted too, because the parameter has the same name.
type LogEncoder struct {
	// The format of the log entries. Default: `json`, or `console` on a terminal.
	WrappedRaw json.RawMessage `json:"wrap,omitempty" caddy:"namespace=caddy.logging.encoders inline_key=format"`

	logging.FilterEncoder `json:"-"`
}

// CaddyModule implements [caddy.Module].
func (*LogEncoder) CaddyModule() caddy.ModuleInfo {
	return caddy.ModuleInfo{ID: "caddy.logging.encoders.fhir", New: func() caddy.Module { return new(LogEncoder) }}
}

// Provision sets up the filters.
func (l *LogEncoder) Provision(ctx caddy.Context) error {
	l.FilterEncoder.WrappedRaw = l.WrappedRaw
	l.Fields = map[string]logging.LogFieldFilter{"request>uri": parameterFilter{}, "resp_headers>Location": parameterFilter{}}
	for _, name := range addressHeaders {
		l.Fields["request>headers>"+name] = parameterFilter{}
	}
	return l.FilterEncoder.Provision(ctx)
}

// UnmarshalCaddyfile parses the log format. Syntax:
//
//	format fhir {
//		wrap <encoder> { … }
//	}
func (l *LogEncoder) UnmarshalCaddyfile(d *caddyfile.Dispenser) error {
	return option.ParseDirective(d, option.Block{"wrap": option.PluginModule(&l.WrappedRaw, "caddy.logging.encoders", "format", nil)})
}

// addressHeaders are the request headers that contain a URI.
var addressHeaders = []string{"Referer", "X-Forwarded-Uri", "X-Original-Uri", "X-Original-Url", "X-Rewrite-Url"}

type parameterFilter struct{}

func (parameterFilter) Filter(in zapcore.Field) zapcore.Field {
	addresses, isArray := in.Interface.(caddyhttp.LoggableStringArray)
	if !isArray {
		in.String = redactParameters(in.String)
		return in
	}
	redacted := make(caddyhttp.LoggableStringArray, len(addresses))
	for i, address := range addresses {
		redacted[i] = redactParameters(address)
	}
	in.Interface = redacted
	return in
}

// redactedParameters are the parameters of OAuth 2.0, OpenID Connect, SMART App Launch and the gateway's forms that contain
// credentials or identify a person.
var redactedParameters = []string{
	"access_token", "assertion", "birthdate", "client_assertion", "client_secret", "code", "code_verifier", "device_code", "factor", "id_token", "id_token_hint", "identifier",
	"launch", "login_hint", "logout_token", "name", "nonce", "password", "refresh_token", "request", "request_uri", "state", "token", "user_code", "username",
}

// redactParameters redacts redactedParameters in the query and fragment of a URI, even if their names are percent-encoded.
func redactParameters(address string) string {
	start := strings.IndexAny(address, "?#")
	if start < 0 {
		return address
	}
	var redacted strings.Builder
	redacted.WriteString(address[:start])
	for rest := address[start:]; rest != ""; {
		end := strings.IndexAny(rest[1:], "?#&;") + 1
		if end == 0 {
			end = len(rest)
		}
		redacted.WriteByte(rest[0])
		redacted.WriteString(redactValue(rest[1:end]))
		rest = rest[end:]
	}
	return redacted.String()
}

func redactValue(parameter string) string {
	escapedName, _, _ := strings.Cut(parameter, "=")
	name, err := url.QueryUnescape(escapedName)
	if err != nil || slices.Contains(redactedParameters, strings.ToLower(name)) {
		return escapedName + "=REDACTED"
	}
	return parameter
}

var (
	_ caddy.Provisioner      = (*LogEncoder)(nil)
	_ zapcore.Encoder        = (*LogEncoder)(nil)
	_ caddyfile.Unmarshaler  = (*LogEncoder)(nil)
	_ logging.LogFieldFilter = parameterFilter{}
)
