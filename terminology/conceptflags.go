package terminology

// conceptFlags is what is known of a concept at a glance.
type conceptFlags uint8

const (
	flagAbstract   conceptFlags = 1 << iota // property notSelectable is true
	flagInactive                            // property inactive is true, or status is retired or inactive
	flagDeprecated                          // status is deprecated, or deprecated is true or has a date
	flagStatus                              // has a status that is not active
	flagDesignated                          // has designations
	flagExtended                            // has extensions
)

// toldFlags are those that say something of the concept itself.
const toldFlags = flagAbstract | flagInactive | flagDeprecated | flagStatus
