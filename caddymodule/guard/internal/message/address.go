package message

import (
	"net/http"
	"regexp"
	"strings"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/smart/resource"
)

// Addresses are how clients know the FHIR API.
type Addresses struct {
	Path string // of the API
	Base string // its URL; empty: links are relative
}

// URL is the address of a path below the FHIR base, as clients know it.
func (to Addresses) URL(path, query string) string {
	base := to.Base
	if base == "" {
		base = to.Path
	}
	u := strings.TrimSuffix(base+"/"+path, "/")
	if query != "" {
		u += "?" + query
	}
	return u
}

// Parse reads a resource of an answer.
func (to Addresses) Parse(text []byte) (resource.Resource, error) {
	res, err := resource.Parse(text, to.Base)
	if err != nil {
		return res, Withheld(err)
	}
	return res, nil
}

// ResourceURL finds the resource in an address: its type, id and version.
var ResourceURL = regexp.MustCompile(`(?:^|/)([A-Z][A-Za-z]+/[A-Za-z0-9.-]{1,64}(?:/_history/[A-Za-z0-9.-]{1,64})?)$`)

// LocalURL is the address of a resource as clients know it, whatever the FHIR server calls itself.
func (to Addresses) LocalURL(address string) (string, bool) {
	address, _, _ = strings.Cut(address, "?")
	if match := ResourceURL.FindStringSubmatch(address); match != nil {
		return to.URL(match[1], ""), true
	}
	return "", false
}

// localizeHeader has headers name resources as clients know them.
func (to Addresses) localizeHeader(header http.Header) {
	for _, name := range []string{"Location", "Content-Location"} {
		if address := header.Get(name); address == "" {
			continue
		} else if local, ok := to.LocalURL(address); ok {
			header.Set(name, local)
		} else {
			header.Del(name)
		}
	}
}

// Localize has an answer's headers name resources as clients know them.
func (to Addresses) Localize(a *Answer) *Answer {
	to.localizeHeader(a.Header)
	return a
}

// WithoutVersion is a reference to a resource, from one to a version of it.
func WithoutVersion(reference string) string {
	resource, _, _ := strings.Cut(reference, "/_history/")
	return resource
}
