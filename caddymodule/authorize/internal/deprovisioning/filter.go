package deprovisioning

import (
	"encoding/json"
	"net/http"
	"strings"
)

// parseFilter reads userName eq "…" or externalId eq "…" (RFC 7644 §3.4.2.2). Providers send no other to find a person.
func parseFilter(text string) (of names, err error) {
	attribute, rest, _ := strings.Cut(strings.TrimSpace(text), " ")
	operator, literal, _ := strings.Cut(strings.TrimSpace(rest), " ")
	var value string
	if !strings.EqualFold(operator, "eq") || json.Unmarshal([]byte(literal), &value) != nil {
		return of, errFilter
	}
	switch name := strings.TrimPrefix(strings.ToLower(attribute), strings.ToLower(userSchema)+":"); name {
	case "username":
		of.UserName = value
	case "externalid":
		of.ExternalID = value
	default:
		return of, errFilter
	}
	return of, of.check()
}

var errFilter = &scimError{status: http.StatusBadRequest, kind: "invalidFilter", detail: `only userName eq "…" and externalId eq "…" are understood`}
