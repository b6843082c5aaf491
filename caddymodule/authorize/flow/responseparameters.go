package flow

import (
	"net/url"
	"strings"
)

// responseParameters are those of an authorization response, in this order.
type responseParameters []struct{ name, value string }

// add adds a parameter that has a value.
func (ps *responseParameters) add(name, value string) {
	if value != "" {
		*ps = append(*ps, struct{ name, value string }{name, value})
	}
}

// encode writes spaces as %20, because some decoders of fragments take + literally.
func (ps responseParameters) encode() string {
	var b strings.Builder
	for i, p := range ps {
		if i > 0 {
			b.WriteByte('&')
		}
		b.WriteString(p.name + "=" + strings.ReplaceAll(url.QueryEscape(p.value), "+", "%20"))
	}
	return b.String()
}
