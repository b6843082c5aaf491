package codesystem

import "slices"

var registered []Source

// Register adds code systems that libraries with the built-in definitions know. Packages call it from init, so that a
// program has the code systems whose packages it imports.
func Register(sources ...Source) { registered = append(registered, sources...) }

// Registered returns the registered code systems, in the order of their registration.
func Registered() []Source { return slices.Clone(registered) }
