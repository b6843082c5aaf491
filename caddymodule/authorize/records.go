package authorize

import "github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/launch"

type (
	// Records asks the FHIR server in a person's name.
	Records = launch.Records

	// RecordReader is in whose name records are asked for, as in an access token.
	RecordReader = launch.Reader
)

// ErrNoRecord says that a resource does not exist, or may not be seen: nobody can tell which.
var ErrNoRecord = launch.ErrNoRecord

// IsID reports whether a text is a FHIR id.
func IsID(text string) bool { return launch.IsID(text) }
