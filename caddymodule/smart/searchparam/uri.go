package searchparam

import "github.com/caddy-fhir/caddy-fhir/caddymodule/smart/resource"

// uri is a URI, which is compared as it is written.
type uri string

func (u uri) matches(_ resource.Resource, path resource.Path, element []byte) bool {
	return matchesURL(string(u), path.Type, primitive(element))
}
