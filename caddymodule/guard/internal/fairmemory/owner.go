package fairmemory

// Owner is a client, a person or a network. All shares of one owner together get at most a part of the memory.
type Owner struct {
	kind, issuer, id string
	divisor          int64 // of the memory's size
}

// An owner gets this part of the memory. A person's part is half of a client's, so that one person does not use up the part
// of the client that others use too.
const (
	clientDivisor = 2
	personDivisor = 2 * clientDivisor
)

// Client returns the client of an issuer's tokens, which gets at most half of the memory.
func Client(issuer, id string) Owner { return Owner{"client", issuer, id, clientDivisor} }

// Person returns the subject of an issuer's tokens, who gets at most a quarter of the memory with all clients together.
func Person(issuer, subject string) Owner { return Owner{"person", issuer, subject, personDivisor} }

// Network returns the network that requests without a token come from, which gets at most half of the memory.
func Network(network string) Owner { return Owner{"network", "", network, clientDivisor} }
