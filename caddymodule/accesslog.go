package caddymodule

import (
	"encoding/json"
	"net/url"
	"slices"
	"strings"

	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/caddyconfig"
	"github.com/caddyserver/caddy/v2/caddyconfig/caddyfile"
	"github.com/caddyserver/caddy/v2/modules/caddyhttp"
	"github.com/caddyserver/caddy/v2/modules/logging"
	"go.uber.org/zap/zapcore"
)

func init() { caddy.RegisterModule(new(LogEncoder)) }

// LogEncoder is a log format that keeps codes, tokens, `state` and what people type
// to sign in out of access logs: in the request's URI, its `Referer` and the headers in
// which proxies repeat the URI, and in the `Location` of answers, such parameters are shown as `REDACTED`. The headers
// `Authorization`, `Cookie` and `Set-Cookie` Caddy hides by itself.
//
// A FHIR search by `code` is hidden too, because the name is the same.
type LogEncoder struct {
	// The format that entries are written in. Default: `json`, or `console` on a
	// terminal.
	WrappedRaw json.RawMessage `json:"wrap,omitempty" caddy:"namespace=caddy.logging.encoders inline_key=format"`

	logging.FilterEncoder `json:"-"`
}

// CaddyModule returns the Caddy module information.
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

// UnmarshalCaddyfile sets up the format from Caddyfile tokens. Syntax:
//
//	format fhir {
//		wrap <encoder> { … }
//	}
func (l *LogEncoder) UnmarshalCaddyfile(d *caddyfile.Dispenser) error {
	return parseDirective(d, subdirectives{"wrap": func(d *caddyfile.Dispenser) error {
		if !d.NextArg() {
			return d.ArgErr()
		}
		name := d.Val()
		encoder, err := caddyfile.UnmarshalModule(d, "caddy.logging.encoders."+name)
		if err != nil {
			return err
		}
		l.WrappedRaw = caddyconfig.JSONModuleObject(encoder, "format", name, nil)
		return nil
	}})
}

// addressHeaders are those of requests that hold an address: where the link was, or what
// a proxy before us was asked for.
var addressHeaders = []string{"Referer", "X-Forwarded-Uri", "X-Original-Uri", "X-Original-Url", "X-Rewrite-Url"}

// parameterFilter hides parameters in an address.
type parameterFilter struct{}

// Filter implements logging.LogFieldFilter.
func (parameterFilter) Filter(in zapcore.Field) zapcore.Field {
	addresses, many := in.Interface.(caddyhttp.LoggableStringArray)
	if !many {
		in.String = hideParameters(in.String)
		return in
	}
	hidden := make(caddyhttp.LoggableStringArray, len(addresses))
	for i, address := range addresses {
		hidden[i] = hideParameters(address)
	}
	in.Interface = hidden
	return in
}

// hiddenParameters are those of OAuth 2.0, OpenID Connect and SMART App Launch by
// which somebody could act for somebody else, or know them, and our own.
var hiddenParameters = []string{
	"access_token", "assertion", "client_assertion", "client_secret", "code", "code_verifier", "device_code", "factor", "id_token", "id_token_hint",
	"launch", "login_hint", "logout_token", "nonce", "password", "refresh_token", "request", "request_uri", "state", "token", "user_code", "username",
}

// hideParameters hides those in the query and in the fragment of an address, by
// their names as a server reads them, and leaves the rest as it is written.
func hideParameters(address string) string {
	start := strings.IndexAny(address, "?#")
	if start < 0 {
		return address
	}
	var shown strings.Builder
	shown.WriteString(address[:start])
	for rest := address[start:]; rest != ""; {
		end := strings.IndexAny(rest[1:], "?#&;") + 1
		if end == 0 {
			end = len(rest)
		}
		shown.WriteByte(rest[0])
		shown.WriteString(hideValue(rest[1:end]))
		rest = rest[end:]
	}
	return shown.String()
}

func hideValue(parameter string) string {
	written, _, _ := strings.Cut(parameter, "=")
	name, err := url.QueryUnescape(written)
	if err != nil || slices.Contains(hiddenParameters, strings.ToLower(name)) {
		return written + "=REDACTED"
	}
	return parameter
}

var (
	_ caddy.Provisioner      = (*LogEncoder)(nil)
	_ zapcore.Encoder        = (*LogEncoder)(nil)
	_ caddyfile.Unmarshaler  = (*LogEncoder)(nil)
	_ logging.LogFieldFilter = parameterFilter{}
)
