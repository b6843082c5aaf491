package brands

import (
	"errors"
	"fmt"
	"strings"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/smart"
)

// choosePrimary returns the identifier that the SMART configuration names. Exactly one brand
// must have it.
func choosePrimary(resources members, fhirBase string, wanted *smart.Identifier) (*smart.Identifier, error) {
	if wanted == nil {
		brand, err := brandOf(resources, fhirBase)
		if err != nil {
			return nil, err
		}
		if wanted = firstIdentifier(brand); wanted == nil {
			if len(resources.all("Organization")) > 1 {
				return nil, fmt.Errorf("%s.identifier: is missing; where there are several brands, that of this server must have one", brand.path)
			}
			return nil, nil
		}
	}
	if n := countIdentifier(resources, *wanted); n != 1 {
		return nil, fmt.Errorf("%d identifiers of Organizations are %s; the primary brand's must be there once", n, wanted)
	}
	return wanted, nil
}

var errAmbiguous = errors.New("several brands have this server's Endpoint: name the identifier of the primary one with primary")

// brandOf returns the brand to which the Endpoint of a FHIR API belongs. Of several it is
// the one that is part of no other.
func brandOf(resources members, fhirBase string) (element, error) {
	var all, top []element
	for _, brand := range resources.all("Organization") {
		for _, endpoint := range resources.all("Endpoint") {
			if sameBase(endpoint.member("address").text(), fhirBase) && refers(brand, endpoint, resources) {
				all = append(all, brand)
				if !brand.member("partOf").exists() {
					top = append(top, brand)
				}
			}
		}
	}
	switch {
	case len(all) == 0:
		return element{}, fmt.Errorf("no Endpoint has the address %s, this server's FHIR base: add one, or name the identifier of this server's brand with primary", fhirBase)
	case len(all) == 1:
		return all[0], nil
	case len(top) == 1:
		return top[0], nil
	}
	return element{}, errAmbiguous
}

func sameBase(a, b string) bool { return strings.TrimSuffix(a, "/") == strings.TrimSuffix(b, "/") }

// identifiers are those of a brand that have a value.
func identifiers(brand element) (list []smart.Identifier) {
	for _, identifier := range brand.each("identifier") {
		if value := identifier.member("value").text(); value != "" {
			list = append(list, smart.Identifier{System: identifier.member("system").text(), Value: value})
		}
	}
	return list
}

// firstIdentifier prefers a URL, as SMART recommends.
func firstIdentifier(brand element) *smart.Identifier {
	list := identifiers(brand)
	for i := range list {
		if list[i].System == URISystem {
			return &list[i]
		}
	}
	if len(list) == 0 {
		return nil
	}
	return &list[0]
}

func countIdentifier(resources members, wanted smart.Identifier) (n int) {
	for _, brand := range resources.all("Organization") {
		for _, identifier := range identifiers(brand) {
			if identifier == wanted {
				n++
			}
		}
	}
	return n
}
