# Clients that leave: perl rude.pl port body. Of three one sends half a body, one a whole one and waits for nothing, one half a header.
use strict;
use IO::Socket::INET;
my ($port, $path) = @ARGV;
open(my $file, '<', $path) or die $!;
my $body = do { local $/; <$file> };
my $head = "POST /classify HTTP/1.1\r\nHost: a\r\nContent-Length: " . length($body) . "\r\n\r\n";
my @said = ($head . substr($body, 0, length($body) / 2), $head . $body, substr($head, 0, 20));
for my $i (1 .. 300) {
  my $socket = IO::Socket::INET->new(PeerAddr => "127.0.0.1:$port") or die "no connection: $@";
  print $socket $said[$i % 3];
  close $socket;
}
