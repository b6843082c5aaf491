// Package fhirbase defines the path of the FHIR API, which all handlers need, and finds the app `fhir` for them. Handlers do
// not import the app, so that `fhir_bearer`, `fhir_expand` and `fhir_outcome` can be built without an authorization server.
package fhirbase

import (
	"cmp"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/url"
	"strings"

	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/modules/caddyhttp"
	"github.com/caddyserver/certmagic"
	"go.uber.org/zap/exp/zapslog"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/httporigin"
)

// ErrNoApp is returned if the fhir app is not configured.
var ErrNoApp = errors.New("the fhir global option is required: it contains the issuer")

// FindApp returns the configured app as type A, or [ErrNoApp]. Unlike [caddy.Context.App], it does not create an empty
// app.
func FindApp[A any](ctx caddy.Context) (zero A, err error) {
	app, err := ctx.AppIfConfigured("fhir")
	if errors.Is(err, caddy.ErrNotConfigured) {
		return zero, ErrNoApp
	}
	if err != nil {
		return zero, fmt.Errorf("loading the fhir global option: %w", err)
	}
	found, ok := app.(A)
	if !ok {
		return zero, fmt.Errorf("the fhir global option has the unexpected type %T", app)
	}
	return found, nil
}

// FindAppOrNil returns the configured app, or nil.
func FindAppOrNil[A any](ctx caddy.Context) (A, error) {
	app, err := FindApp[A](ctx)
	if errors.Is(err, ErrNoApp) {
		return app, nil
	}
	return app, err
}

// Addresser is the part of the app that has the addresses of the authorization server and the FHIR API.
type Addresser interface {
	// Address returns the issuer and the path of the FHIR API below it.
	Address() (issuer, fhirBase string)
}

// DefaultBase is the default path of the FHIR API.
const DefaultBase = "/fhir/R4"

// ResolveBase returns the FHIR base: the handler's option configured, otherwise that of the fhir app, otherwise the default.
func ResolveBase(ctx caddy.Context, configured string) (string, error) {
	if configured != "" {
		return configured, CheckBase(configured)
	}
	app, err := FindAppOrNil[Addresser](ctx)
	if app == nil {
		return DefaultBase, err
	}
	_, base := app.Address()
	return base, nil
}

// CheckBase checks the path of a FHIR API.
func CheckBase(path string) error {
	if !strings.HasPrefix(path, "/") || strings.HasSuffix(path, "/") || strings.ContainsAny(path, "?#%* ") {
		return fmt.Errorf("fhir_base %q must be a path like %s, without a trailing slash", path, DefaultBase)
	}
	return nil
}

// SplitBase splits the URL of an API into its origin and path. The origin of a path is empty.
func SplitBase(base string) (origin, path string, err error) {
	if base == "" || base[0] == '/' {
		return "", base, nil
	}
	u, err := url.Parse(base)
	if err != nil || u.Host == "" || u.User != nil || u.Scheme != "https" && (u.Scheme != "http" || !httporigin.IsLoopback(u.Hostname())) {
		return "", "", fmt.Errorf("fhir_base %q must be a path like %s, or an https URL that ends with one", base, DefaultBase)
	}
	path = strings.TrimPrefix(base, u.Scheme+"://"+u.Host)
	return u.Scheme + "://" + u.Host, path, CheckBase(path)
}

// CheckBaseOrURL checks the path or the URL of a FHIR API.
func CheckBaseOrURL(base string) error {
	_, path, err := SplitBase(base)
	return cmp.Or(err, CheckBase(path))
}

// StorageName returns the name of an issuer in storage keys and file names.
func StorageName(issuer string) string {
	return certmagic.StorageKeys.Safe(strings.TrimPrefix(issuer, "https://"))
}

// OriginalPath returns the path before any rewrites.
func OriginalPath(r *http.Request) string {
	if original, ok := r.Context().Value(caddyhttp.OriginalRequestCtxKey).(http.Request); ok && original.URL != nil {
		return original.URL.Path
	}
	return r.URL.Path
}

// IsBelow reports whether a path is the FHIR base or below it. It ignores case, as Caddy's path matcher does, so
// everything that `handle /fhir/R4/*` matches is below the base.
func IsBelow(path, base string) bool {
	path, base = strings.ToLower(path), strings.ToLower(base)
	return path == base || strings.HasPrefix(path, base+"/")
}

// LocalOperationsVar is the variable of a request for the CapabilityStatement that fhir_expand sets if it handles
// operations before the FHIR server: true for all operations, false for $expand alone.
const LocalOperationsVar = "fhir.answered_operations"

// AuditLogger is the logger name of the audit log, for `include` and `exclude` of Caddy's global option log.
const AuditLogger = "fhir.audit"

// NewLogger returns Caddy's logger, or that of another module if given, without stack traces. Caddy omits them only
// outside of requests.
func NewLogger(ctx caddy.Context, name string, of ...caddy.Module) *slog.Logger {
	const never = slog.Level(127)
	return slog.New(zapslog.NewHandler(ctx.Logger(of...).Core(), zapslog.WithName(name), zapslog.AddStacktraceAt(never)))
}
