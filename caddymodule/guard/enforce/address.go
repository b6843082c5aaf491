package enforce

import (
	"net/http"
	"regexp"
	"strings"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/smart/resource"
)

// addresses are how clients know the FHIR API.
type addresses struct {
	path string // of the API
	base string // its URL; empty: links are relative
}

// url is the address of a path below the FHIR base, as clients know it.
func (to addresses) url(path, query string) string {
	base := to.base
	if base == "" {
		base = to.path
	}
	u := strings.TrimSuffix(base+"/"+path, "/")
	if query != "" {
		u += "?" + query
	}
	return u
}

// parse reads a resource of an answer.
func (to addresses) parse(text []byte) (resource.Resource, error) {
	res, err := resource.Parse(text, to.base)
	if err != nil {
		return res, withheld(err)
	}
	return res, nil
}

// resourceURL finds the resource in an address: its type, id and version.
var resourceURL = regexp.MustCompile(`(?:^|/)([A-Z][A-Za-z]+/[A-Za-z0-9.-]{1,64}(?:/_history/[A-Za-z0-9.-]{1,64})?)$`)

// localURL is the address of a resource as clients know it, whatever the FHIR server calls itself.
func (to addresses) localURL(address string) (string, bool) {
	address, _, _ = strings.Cut(address, "?")
	if match := resourceURL.FindStringSubmatch(address); match != nil {
		return to.url(match[1], ""), true
	}
	return "", false
}

// localizeHeader has headers name resources as clients know them.
func (to addresses) localizeHeader(header http.Header) {
	for _, name := range []string{"Location", "Content-Location"} {
		if address := header.Get(name); address == "" {
			continue
		} else if local, ok := to.localURL(address); ok {
			header.Set(name, local)
		} else {
			header.Del(name)
		}
	}
}

// localize has an answer's headers name resources as clients know them.
func (to addresses) localize(a *answer) *answer {
	to.localizeHeader(a.header)
	return a
}

// localizeEntries does so for a Bundle.
func (to addresses) localizeEntries(entries []entry) {
	for i := range entries {
		if local, ok := to.localURL(entries[i].fullURL); ok {
			entries[i].fullURL = local
		}
	}
}

// withoutVersion is a reference to a resource, from one to a version of it.
func withoutVersion(reference string) string {
	resource, _, _ := strings.Cut(reference, "/_history/")
	return resource
}
