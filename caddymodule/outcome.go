package caddymodule

import (
	"encoding/json"
	"errors"
	"net/http"
	"strings"

	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/caddyconfig/caddyfile"
	"github.com/caddyserver/caddy/v2/caddyconfig/httpcaddyfile"
	"github.com/caddyserver/caddy/v2/modules/caddyhttp"

	"github.com/caddy-fhir/caddy-fhir/terminology"
	"github.com/caddy-fhir/caddy-fhir/terminology/fhirxml"
)

func init() {
	caddy.RegisterModule(new(Outcome))
	registerHandler("fhir_outcome", httpcaddyfile.Before, "invoke", func() handlerDirective { return new(Outcome) })
}

// Outcome answers errors below the FHIR base with an OperationOutcome (FHIR R4,
// §3.1.0.4), the one representation of an error that FHIR clients read: in JSON,
// or in XML for who asks for that. It stands in `handle_errors`. Errors elsewhere
// go on to the next handler. What fhir_bearer and fhir_expand refuse, or what fails
// behind them, needs no fhir_outcome where there are no `handle_errors`, and is an
// OperationOutcome by it below whichever base these have.
type Outcome struct {
	// The path of the FHIR API. Default: that of the fhir app, or `/fhir/R4`.
	FHIRBase string `json:"fhir_base,omitempty"`

	failures *failureLog
}

// CaddyModule returns the Caddy module information.
func (*Outcome) CaddyModule() caddy.ModuleInfo {
	return caddy.ModuleInfo{ID: "http.handlers.fhir_outcome", New: func() caddy.Module { return new(Outcome) }}
}

// Provision finds the FHIR base.
func (h *Outcome) Provision(ctx caddy.Context) (err error) {
	h.failures = newFailureLog(ctx.Slogger())
	h.FHIRBase, err = fhirBase(ctx, h.FHIRBase)
	return err
}

// fhirBase is what a handler was told, or the fhir app says, or the default:
// handlers that need no app work without one.
func fhirBase(ctx caddy.Context, told string) (string, error) {
	if told != "" {
		return told, checkFHIRBase(told)
	}
	app, err := fhirApp(ctx)
	if errors.Is(err, errNoApp) {
		return DefaultFHIRBase, nil
	}
	if err != nil {
		return "", err
	}
	return app.FHIRBase, nil
}

// ServeHTTP implements caddyhttp.MiddlewareHandler.
func (h *Outcome) ServeHTTP(w http.ResponseWriter, r *http.Request, next caddyhttp.Handler) error {
	err, failed := r.Context().Value(caddyhttp.ErrorCtxKey).(error)
	if failed {
		h.failures.request(r, err)
	}
	toldBelow := caddyhttp.GetVar(r.Context(), failedBelow) != nil
	if !failed || !toldBelow && !below(originalPath(r), h.FHIRBase) {
		return next.ServeHTTP(w, r)
	}
	return writeOutcome(w, r, err)
}

// writeOutcome writes an error as an OperationOutcome.
func writeOutcome(w http.ResponseWriter, r *http.Request, err error) error {
	status, outcome, err := describe(err)
	if err != nil {
		return err
	}
	w.Header().Set("Content-Type", "application/fhir+json")
	if terminology.AsksForXML(r) {
		if outcome, err = fhirxml.Append(nil, outcome); err != nil {
			return err
		}
		w.Header().Set("Content-Type", "application/fhir+xml")
	}
	w.Header().Set("Cache-Control", "no-store")
	w.Header().Set("X-Content-Type-Options", "nosniff")
	w.WriteHeader(status)
	_, err = w.Write(outcome)
	return err
}

// originalPath is the path as it was asked for, whatever rewrites came since.
func originalPath(r *http.Request) string {
	if original, ok := r.Context().Value(caddyhttp.OriginalRequestCtxKey).(http.Request); ok && original.URL != nil {
		return original.URL.Path
	}
	return r.URL.Path
}

// below compares as Caddy's path matcher does, without regard to case, so that
// whatever `handle /fhir/R4/*` took is answered here too.
func below(path, base string) bool {
	path, base = strings.ToLower(path), strings.ToLower(base)
	return path == base || strings.HasPrefix(path, base+"/")
}

type operationOutcome struct {
	ResourceType string         `json:"resourceType"`
	Issue        []outcomeIssue `json:"issue"`
}

type outcomeIssue struct {
	Severity    string `json:"severity"`
	Code        string `json:"code"`
	Diagnostics string `json:"diagnostics"`
}

// issueError is an error that was made to be shown: its IssueType is a code of
// http://hl7.org/fhir/issue-type, and its Diagnostics tell nothing that the
// client may not know.
type issueError interface {
	IssueType() string
	Diagnostics() string
}

// outcomeError is an error that is an OperationOutcome of its own, because it
// has more to say than one issue's code and text.
type outcomeError interface {
	OperationOutcome() []byte
}

// describe says what of an error the client is told. What was not made to be
// shown is told by its status alone: its text may name hosts and files.
func describe(err error) (status int, outcome []byte, _ error) {
	status = http.StatusInternalServerError
	var failed caddyhttp.HandlerError
	if errors.As(err, &failed) && failed.StatusCode != 0 {
		status = failed.StatusCode
	}
	var whole outcomeError
	if errors.As(err, &whole) {
		return status, whole.OperationOutcome(), nil
	}
	outcome, err = json.Marshal(operationOutcome{"OperationOutcome", []outcomeIssue{issueOf(err, status)}})
	return status, outcome, err
}

func issueOf(err error, status int) outcomeIssue {
	var shown issueError
	if errors.As(err, &shown) {
		return outcomeIssue{"error", shown.IssueType(), shown.Diagnostics()}
	}
	if d, ok := statusIssues[status]; ok {
		return outcomeIssue{"error", d.code, d.text}
	}
	return outcomeIssue{"error", "processing", http.StatusText(status)}
}

var statusIssues = map[int]struct{ code, text string }{
	http.StatusUnauthorized:          {"login", "An access token is required."},
	http.StatusForbidden:             {"forbidden", "This is not allowed."},
	http.StatusNotFound:              {"not-found", "There is nothing at this address."},
	http.StatusMethodNotAllowed:      {"not-supported", "This method is not supported here."},
	http.StatusRequestEntityTooLarge: {"too-long", "The request is too large."},
	http.StatusTooManyRequests:       {"throttled", "Too many requests. Try again later."},
	http.StatusInternalServerError:   {"exception", "The gateway failed. Its log says why."},
	http.StatusBadGateway:            {"transient", "The FHIR server behind this gateway could not be reached. Try again later."},
	http.StatusServiceUnavailable:    {"transient", "The service is not available at present. Try again later."},
	http.StatusGatewayTimeout:        {"timeout", "The FHIR server behind this gateway did not answer in time."},
}

// UnmarshalCaddyfile sets up the handler from Caddyfile tokens. Syntax:
//
//	fhir_outcome [<matcher>] {
//		fhir_base <path>
//	}
func (h *Outcome) UnmarshalCaddyfile(d *caddyfile.Dispenser) error {
	return parseDirective(d, subdirectives{
		"fhir_base": word(&h.FHIRBase, checkFHIRBase),
	})
}

var (
	_ caddy.Provisioner           = (*Outcome)(nil)
	_ caddyhttp.MiddlewareHandler = (*Outcome)(nil)
	_ caddyfile.Unmarshaler       = (*Outcome)(nil)
)
