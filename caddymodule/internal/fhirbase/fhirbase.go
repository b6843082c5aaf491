// Package fhirbase has the path of the FHIR API, which all handlers need, and finds the app `fhir` for them. Handlers do not
// import the app, so that `fhir_bearer`, `fhir_expand` and `fhir_outcome` can be built without an authorization server.
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

// ErrNone says that there is no app.
var ErrNone = errors.New("the fhir global option is required: it names the issuer")

// Find returns the configured app as a module needs it, or [ErrNone]. Unlike [caddy.Context.App], it does not create an
// empty one.
func Find[A any](ctx caddy.Context) (none A, err error) {
	app, err := ctx.AppIfConfigured("fhir")
	if errors.Is(err, caddy.ErrNotConfigured) {
		return none, ErrNone
	}
	if err != nil {
		return none, fmt.Errorf("the fhir global option: %w", err)
	}
	found, ok := app.(A)
	if !ok {
		return none, fmt.Errorf("the fhir global option: %T does not do", app)
	}
	return found, nil
}

// FindAny returns the configured app, or nil.
func FindAny[A any](ctx caddy.Context) (A, error) {
	app, err := Find[A](ctx)
	if errors.Is(err, ErrNone) {
		return app, nil
	}
	return app, err
}

// Addressed is where the app's authorization server and FHIR API are.
type Addressed interface {
	// Address returns the issuer, and the path of the FHIR API below it.
	Address() (issuer, fhirBase string)
}

// DefaultBase is the default path of the FHIR API.
const DefaultBase = "/fhir/R4"

// Base is the option of a handler, or else that of the fhir app, if there is one, or else the default.
func Base(ctx caddy.Context, told string) (string, error) {
	if told != "" {
		return told, CheckBase(told)
	}
	app, err := FindAny[Addressed](ctx)
	if app == nil {
		return DefaultBase, err
	}
	_, base := app.Address()
	return base, nil
}

// CheckBase checks the path of a FHIR API.
func CheckBase(path string) error {
	if !strings.HasPrefix(path, "/") || strings.HasSuffix(path, "/") || strings.ContainsAny(path, "?#%* ") {
		return fmt.Errorf("fhir_base %q must be a path like %s, without a slash at its end", path, DefaultBase)
	}
	return nil
}

// SplitBase splits the URL of an API into its origin and path. A path has no origin.
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

// CheckBaseOrURL checks the path of a FHIR API, or its URL.
func CheckBaseOrURL(base string) error {
	_, path, err := SplitBase(base)
	return cmp.Or(err, CheckBase(path))
}

// StorageName stands for an issuer in storage keys and file names.
func StorageName(issuer string) string {
	return certmagic.StorageKeys.Safe(strings.TrimPrefix(issuer, "https://"))
}

// OriginalPath is the path before any rewrites.
func OriginalPath(r *http.Request) string {
	if original, ok := r.Context().Value(caddyhttp.OriginalRequestCtxKey).(http.Request); ok && original.URL != nil {
		return original.URL.Path
	}
	return r.URL.Path
}

// Below reports whether a path is the FHIR base or below it. It ignores case, as Caddy's path matcher does, so that
// everything that `handle /fhir/R4/*` takes is below the base.
func Below(path, base string) bool {
	path, base = strings.ToLower(path), strings.ToLower(base)
	return path == base || strings.HasPrefix(path, base+"/")
}

// AnsweredOperations is the variable of a request for the CapabilityStatement in which fhir_expand says that it answers
// operations before the FHIR server: true if all, false if $expand alone.
const AnsweredOperations = "fhir.answered_operations"

// AuditLogger names the audit trail for `include` and `exclude` of Caddy's global option log.
const AuditLogger = "fhir.audit"

// NewLogger returns Caddy's logger, of another module if one is given, without stack traces: Caddy's own leaves them out
// too, but not for what a request logs.
func NewLogger(ctx caddy.Context, name string, of ...caddy.Module) *slog.Logger {
	const never = slog.Level(127)
	return slog.New(zapslog.NewHandler(ctx.Logger(of...).Core(), zapslog.WithName(name), zapslog.AddStacktraceAt(never)))
}
