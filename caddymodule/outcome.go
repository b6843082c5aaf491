package caddymodule

import (
	"cmp"
	"encoding/json"
	"errors"
	"net/http"
	"strings"

	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/caddyconfig/caddyfile"
	"github.com/caddyserver/caddy/v2/caddyconfig/httpcaddyfile"
	"github.com/caddyserver/caddy/v2/modules/caddyhttp"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/guard"
	"github.com/caddy-fhir/caddy-fhir/terminology"
	"github.com/caddy-fhir/caddy-fhir/terminology/fhirxml"
)

func init() {
	caddy.RegisterModule(new(Outcome))
	registerHandler("fhir_outcome", httpcaddyfile.Before, "invoke", func() handlerDirective { return new(Outcome) })
}

// Outcome answers errors below the FHIR base with an OperationOutcome (FHIR R4 §3.1.0.4), in JSON or, if the request
// asks for it and it is not fhir_bearer that refuses it, in XML. It belongs into `handle_errors`. Errors elsewhere go to the next handler.
//
// Errors of fhir_bearer and fhir_expand, and of the handlers behind them, become OperationOutcomes without it if there
// are no `handle_errors`, and below the FHIR base of these handlers if there are.
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

// writeOutcome writes an error as an OperationOutcome. What fhir_bearer refuses is JSON, as all that it answers.
func writeOutcome(w http.ResponseWriter, r *http.Request, failure error) error {
	status, outcome, err := describe(failure)
	if err != nil {
		return err
	}
	w.Header().Set("Content-Type", "application/fhir+json")
	if _, refused := errors.AsType[*guard.Error](failure); !refused && terminology.AsksForXML(r) {
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

// originalPath is the path before any rewrites.
func originalPath(r *http.Request) string {
	if original, ok := r.Context().Value(caddyhttp.OriginalRequestCtxKey).(http.Request); ok && original.URL != nil {
		return original.URL.Path
	}
	return r.URL.Path
}

// below ignores case, as Caddy's path matcher does, so that everything that `handle /fhir/R4/*` takes is below the
// base.
func below(path, base string) bool {
	path, base = strings.ToLower(path), strings.ToLower(base)
	return path == base || strings.HasPrefix(path, base+"/")
}

// operationOutcome has no details and no HTML in its texts, unlike the OperationOutcomes of package terminology.
type operationOutcome struct {
	ResourceType string         `json:"resourceType"`
	Issue        []outcomeIssue `json:"issue"`
}

type outcomeIssue struct {
	Severity    string `json:"severity"`
	Code        string `json:"code"`
	Diagnostics string `json:"diagnostics"`
}

// issueError is an error that is meant to be shown. Its IssueType is a code of http://hl7.org/fhir/issue-type, and its
// Diagnostics hold nothing that the client may not know.
type issueError interface {
	error
	IssueType() string
	Diagnostics() string
}

// outcomeError is an error with an OperationOutcome of its own, for more than one issue's code and text.
type outcomeError interface {
	error
	OperationOutcome() []byte
}

// describe makes an OperationOutcome of an error. An error that is not meant to be shown is described by its status
// alone, because its text may name hosts and files.
func describe(err error) (status int, outcome []byte, _ error) {
	failed, _ := errors.AsType[caddyhttp.HandlerError](err)
	status = cmp.Or(failed.StatusCode, http.StatusInternalServerError)
	if whole, ok := errors.AsType[outcomeError](err); ok {
		return status, whole.OperationOutcome(), nil
	}
	outcome, err = json.Marshal(operationOutcome{"OperationOutcome", []outcomeIssue{issueOf(err, status)}})
	return status, outcome, err
}

func issueOf(err error, status int) outcomeIssue {
	if shown, ok := errors.AsType[issueError](err); ok {
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
