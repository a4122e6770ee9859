#include "server/blobs/s3_listing.h"

#include <gtest/gtest.h>

#include "base/error.h"

namespace flux2 {
namespace {

std::string listing_of(const std::string& contents) {
  return "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<ListBucketResult xmlns=\"http://s3.amazonaws.com/doc/2006-03-01/\">" +
         contents + "</ListBucketResult>\n";
}

TEST(S3Listing, ReadsObjectsAndTheNextPage) {
  const S3Listing listing = read_s3_listing(
      listing_of("<Name>b</Name><Prefix/><KeyCount>2</KeyCount><IsTruncated>true</IsTruncated>\n  "
                 "<Contents><Key>a/b&amp;c&#x20AC;&#65;.png</Key><LastModified>2026-11-16T12:00:01.500Z</LastModified>"
                 "<ETag>&quot;0123&quot;</ETag><Size>123456789012</Size><Owner><ID>x</ID><Key>no key</Key></Owner></Contents>"
                 "<!-- a < comment --><Contents ><Size>0</Size><Key>second</Key></Contents>"
                 "<NextContinuationToken>1/abc+==</NextContinuationToken>"));
  ASSERT_EQ(listing.objects.size(), 2u);
  EXPECT_EQ(listing.objects[0].name, "a/b&c€A.png");
  EXPECT_EQ(listing.objects[0].bytes, 123'456'789'012u);
  EXPECT_EQ(listing.objects[0].modified, 1'794'830'401'000);
  EXPECT_EQ(listing.objects[1].name, "second");
  EXPECT_EQ(listing.next, "1/abc+==");
  EXPECT_TRUE(read_s3_listing(listing_of("")).objects.empty());
  EXPECT_EQ(read_s3_listing(listing_of("<NextContinuationToken>x</NextContinuationToken>")).next, "") << "not truncated";
}

TEST(S3Listing, RefusesWhatIsNoListing) {
  const std::string deep(20, '<');
  for (const std::string& xml : {std::string(),
                                 std::string("<html><body>Not here</body></html>"),
                                 std::string("<ListBucketResult>"),
                                 std::string("<ListBucketResult></Other>"),
                                 std::string("</ListBucketResult>"),
                                 deep,
                                 std::string("<>"),
                                 std::string("<!DOCTYPE x [<!ENTITY a \"b\">]><ListBucketResult/>"),
                                 listing_of("<Contents></Contents>"),
                                 listing_of("<Contents><Key>a</Key><Size>x</Size></Contents>"),
                                 listing_of("<Contents><Key>&a;</Key></Contents>"),
                                 listing_of("<Contents><Key>&#0;</Key></Contents>"),
                                 listing_of("<Contents><Key>&#xD800;</Key></Contents>"),
                                 listing_of("<Contents><Key>&#;</Key></Contents>"),
                                 listing_of("<Contents><Key>&amp</Key></Contents>"),
                                 listing_of("<Contents><Key>a</Key><LastModified>soon</LastModified></Contents>"),
                                 listing_of("<Contents><Key>a</Key><Size>99999999999999999999999</Size></Contents>"),
                                 listing_of("<IsTruncated>true</IsTruncated>"),
                                 listing_of("<Contents><Key>" + std::string(5000, 'a') + "</Key></Contents>"),
                                 listing_of("<a><a><a><a><a><a><a><a><a><a><a><a><a><a><a><a><a>")})
    EXPECT_THROW(read_s3_listing(xml), Error) << xml.substr(0, 200);
}

TEST(S3Listing, FindsTheFieldsOfErrors) {
  const char* xml = "<?xml version=\"1.0\"?><Error><Code>NoSuchKey</Code><Message>It is &lt;gone&gt;.</Message></Error>";
  EXPECT_EQ(s3_error_field(xml, "Code"), "NoSuchKey");
  EXPECT_EQ(s3_error_field(xml, "Message"), "It is <gone>.");
  EXPECT_EQ(s3_error_field(xml, "Region"), "");
  EXPECT_EQ(s3_error_field("not XML <", "Code"), "");
  EXPECT_EQ(s3_error_field("", "Code"), "");
}

}  // namespace
}  // namespace flux2
