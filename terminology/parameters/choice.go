package parameters

import "github.com/caddy-fhir/caddy-fhir/terminology/outcome"

// Choice is a boolean parameter, which may be absent.
type Choice uint8

// The values of a [Choice].
const (
	// Unset is a parameter that is not given.
	Unset Choice = iota

	// No is a parameter that is false.
	No

	// Yes is a parameter that is true.
	Yes
)

// Set reads a parameter, which must be true or false.
func (c *Choice) Set(in *Input) error {
	switch in.Value {
	case "true":
		*c = Yes
	case "false":
		*c = No
	default:
		return outcome.BadRequest("invalid", "the parameter %s must be true or false", in.Name)
	}
	return nil
}
