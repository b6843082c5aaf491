package textindex

import "math/bits"

// pieces are the runs of four bytes in words, each as one of many bits, so that what no word contains is mostly known
// without a look at them.
type pieces []uint64

const (
	pieceLength = 4

	// mostPieces is up to how many bits there are; more would rarely tell more.
	mostPieces = 1 << 19
)

// newPieces returns the pieces of words.
func newPieces(words *wordList) pieces {
	size := min(mostPieces, 64<<bits.Len(uint(len(words.text)/32)))
	p := make(pieces, size/64)
	for i := range words.len() {
		word := words.at(i)
		for at := range len(word) - pieceLength + 1 {
			bit := p.bit(word[at:])
			p[bit/64] |= 1 << (bit % 64)
		}
	}
	return p
}

// bit returns the bit of the piece that a text begins with.
func (p pieces) bit(text []byte) uint32 {
	piece := uint32(text[0]) | uint32(text[1])<<8 | uint32(text[2])<<16 | uint32(text[3])<<24
	return piece * 0x9e3779b1 >> 8 & uint32(64*len(p)-1) // by the golden ratio (Knuth)
}

// mayContain reports whether a word may contain part. If not, none does.
func (p pieces) mayContain(part []byte) bool {
	for at := range len(part) - pieceLength + 1 {
		if bit := p.bit(part[at:]); p[bit/64]&(1<<(bit%64)) == 0 {
			return false
		}
	}
	return true
}
