package providertest

// Saying sets a claim of a token; nil removes it.
func Saying(name string, value any) func(*IDToken) {
	return func(t *IDToken) {
		if t.Claims[name] = value; value == nil {
			delete(t.Claims, name)
		}
	}
}
