// Package fhirbase defines the path of the FHIR API, which all handlers need, and provides access to the app `fhir`. Handlers
// do not import the app, so that `fhir_bearer`, `fhir_expand` and `fhir_outcome` can be built without an authorization server.
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

// ErrNoApp is returned if the global option fhir is required but not configured.
var ErrNoApp = errors.New("the fhir global option is required: it contains the issuer")

// FindApp returns the configured app as type A, or [ErrNoApp]. Unlike [caddy.Context.App], it does not create an empty app.
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

// FindAppOrNil returns the configured app as type A, or nil.
func FindAppOrNil[A any](ctx caddy.Context) (A, error) {
	app, err := FindApp[A](ctx)
	if errors.Is(err, ErrNoApp) {
		return app, nil
	}
	return app, err
}

// Addresser is the part of the app's interface that returns the addresses of the authorization server and the FHIR API.
type Addresser interface {
	// Address returns the issuer and the path of the FHIR API.
	Address() (issuer, fhirBase string)
}

// DefaultBase is the default path of the FHIR API.
const DefaultBase = "/fhir/R4"

// ResolveBase returns the FHIR base: the handler's configured option, otherwise that of the fhir app, otherwise the default.
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

// CheckBase returns an error unless path is a valid path of a FHIR API.
func CheckBase(path string) error {
	if !strings.HasPrefix(path, "/") || strings.HasSuffix(path, "/") || strings.ContainsAny(path, "?#%* ") {
		return fmt.Errorf("fhir_base %q must be a path like %s, without a trailing slash", path, DefaultBase)
	}
	return nil
}

// SplitBase splits the URL or path of an API into origin and path. If base is a path, the origin is "".
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

// CheckBaseOrURL returns an error unless the text is a valid path or URL of a FHIR API.
func CheckBaseOrURL(base string) error {
	_, path, err := SplitBase(base)
	return cmp.Or(err, CheckBase(path))
}

// StorageName returns the name that represents an issuer in storage keys and file names.
func StorageName(issuer string) string {
	return certmagic.StorageKeys.Safe(strings.TrimPrefix(issuer, "https://"))
}

// OriginalPath returns the path of a request before any rewrites.
func OriginalPath(r *http.Request) string {
	if original, ok := r.Context().Value(caddyhttp.OriginalRequestCtxKey).(http.Request); ok && original.URL != nil {
		return original.URL.Path
	}
	return r.URL.Path
}

// IsBelow reports whether a path is the FHIR base or below it. It ignores case like Caddy's path matcher, so everything that
// `handle /fhir/R4/*` matches is below the base.
func IsBelow(path, base string) bool {
	path, base = strings.ToLower(path), strings.ToLower(base)
	return path == base || strings.HasPrefix(path, base+"/")
}

// LocalOperationsVar is the variable that fhir_expand sets in a request for the CapabilityStatement if it handles operations in
// front of the FHIR server: true for all operations, false for only $expand.
const LocalOperationsVar = "fhir.answered_operations"

// AuditLogger is the logger name of the audit log, for `include` and `exclude` in Caddy's global option log.
const AuditLogger = "fhir.audit"

// NewLogger returns Caddy's logger for the current module, or for another module if given, without stack traces. Caddy omits
// stack traces only outside of requests.
func NewLogger(ctx caddy.Context, name string, of ...caddy.Module) *slog.Logger {
	const never = slog.Level(127)
	return slog.New(zapslog.NewHandler(ctx.Logger(of...).Core(), zapslog.WithName(name), zapslog.AddStacktraceAt(never)))
}
