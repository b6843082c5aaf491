package expansion

import (
	"bytes"
	"slices"

	"github.com/caddy-fhir/caddy-fhir/terminology/codesystem"
	"github.com/caddy-fhir/caddy-fhir/terminology/internal/fhirjson"
	"github.com/caddy-fhir/caddy-fhir/terminology/outcome"
)

// wantsDesignation reports whether a designation was asked for, by use or by language as urn:ietf:bcp:47|de.
func (q *Query) wantsDesignation(t *codesystem.Text) bool {
	return len(q.Designations) == 0 || slices.ContainsFunc(q.Designations, func(token string) bool {
		system, code := outcome.Split(token)
		return system == "urn:ietf:bcp:47" && code == t.Language || t.Use.Code != "" && system == t.Use.System && code == t.Use.Code
	})
}

// appendDesignations appends contains.designation: all texts but the one that is the display.
func (q *Query) appendDesignations(dst []byte, texts []codesystem.Text, display int) []byte {
	list := fhirjson.Array{Name: "designation"}
	for i := range texts {
		t := &texts[i]
		same := display >= 0 && bytes.Equal(t.Value, texts[display].Value) && t.Extension == nil
		redundant := same && (t.Display || t.Language == "" && t.Use == (codesystem.Use{}))
		if i != display && !redundant && q.wantsDesignation(t) {
			dst = t.Append(list.Next(dst))
		}
	}
	return list.End(dst)
}
