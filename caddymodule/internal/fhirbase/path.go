package fhirbase

import (
	"net/http"
	"strings"

	"github.com/caddyserver/caddy/v2/modules/caddyhttp"
)

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
